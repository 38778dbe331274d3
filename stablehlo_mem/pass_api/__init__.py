"""What passes and planner exchange: goals, candidates, steps, refusals."""

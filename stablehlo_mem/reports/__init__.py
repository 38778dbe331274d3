"""Results as text, HTML pages and plots. The api and the command line call it; `BudgetError` takes its message here."""

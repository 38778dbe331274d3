"""Regions of ops as loops over slices of one axis: which axes there are, what runs in a loop, what it costs."""

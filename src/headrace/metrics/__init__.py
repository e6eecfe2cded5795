"""Metrics as plain numbers: names, histograms, and the text for Prometheus. Pure."""

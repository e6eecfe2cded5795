"""What a node counts, as plain numbers: the names, the histograms and the text that Prometheus reads. Pure."""

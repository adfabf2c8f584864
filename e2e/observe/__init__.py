"""What an engine tells about itself: /metrics, its effective configuration, its connector's counters, its log."""

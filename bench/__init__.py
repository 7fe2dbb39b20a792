"""Speed and memory, measured on loopback; figures are ratios within one run, for machines are noisy."""

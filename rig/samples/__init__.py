"""Sample data for both sources, and the workloads that change it."""

"""The demo and the benchmarks: the whole pipeline on this machine, with a report."""

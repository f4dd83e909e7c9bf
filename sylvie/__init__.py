"""Full-graph GNN training over many processes: exchange, quantize, adapt, and account for every byte."""

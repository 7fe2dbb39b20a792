"""Owns rows in bulk: chunks of input, batches of output, which rows are chosen, how values are stored."""

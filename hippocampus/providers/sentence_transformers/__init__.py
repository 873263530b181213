"""sentence-transformers: embedding models by PyTorch, downloaded at first use."""

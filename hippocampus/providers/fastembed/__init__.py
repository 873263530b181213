"""fastembed: embedding models by ONNX, downloaded at first use."""

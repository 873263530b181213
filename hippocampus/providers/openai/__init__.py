"""OpenAI, and every server with its API: vLLM, Ollama, LM Studio, LiteLLM, llama.cpp, Gemini's own endpoint."""

"""The paper's tables and figures, each a short file; what they share is trained once."""

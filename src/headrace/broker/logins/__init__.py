"""Who a client is: SASL exchanges, passwords, tokens, certificates, and the lines that tell of them."""

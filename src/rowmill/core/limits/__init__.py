"""How much may be sent: rates, token estimates, the adaptive limit, announced limits; pure arithmetic."""

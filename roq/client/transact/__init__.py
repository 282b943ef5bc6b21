"""Transactions: messages that nobody sees until their producer's own work is done."""

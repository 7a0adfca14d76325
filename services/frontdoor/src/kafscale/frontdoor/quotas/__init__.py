"""Who is over a quota: usage that is measured, shared and limited (docs/quotas.md)."""

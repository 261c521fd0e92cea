"""pytest under crashkit: which test a crash belongs to, and a fresh process that reports it and goes on."""

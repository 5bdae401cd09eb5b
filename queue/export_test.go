package queue

// SweepAll makes the next sweep look at all leases, and at all ordering keys.
func (q *Queue) SweepAll() { q.sweeps = sweeps{} }

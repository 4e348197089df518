package stats

// HoldTotals stands for a snapshot that takes long, until release is called.
func HoldTotals(r *Registry) (release func()) {
	r.totals.Lock()

	return r.totals.Unlock
}

// KeyOf gives the key of a series.
func KeyOf(s *Series) Key { return s.row.key }

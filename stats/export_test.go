package stats

// HoldTotals stands for a snapshot that takes long, until release is called.
func HoldTotals(r *Registry) (release func()) {
	r.totals.Lock()

	return r.totals.Unlock
}

// KeyOf gives the key of a series.
func KeyOf(s *Series) Key { return s.row.key }

// ReadHeld and SnapshotHeld read while [HoldTotals] holds the totals, as if all that closed since had closed after they began.
func ReadHeld(rd *Reader) Reading { return rd.readTotalsLocked() }

// SnapshotHeld is as ReadHeld.
func SnapshotHeld(r *Registry) Snapshot { return r.snapshotTotalsLocked() }

package broadcast

// Stats is a topic at one moment.
type Stats struct {
	Published uint64 // events since the topic was made
	Newest    uint64 // sequence number of the newest event; before the first, the one before it
	Oldest    uint64 // sequence number of the oldest event in the window; Newest + 1 if it is empty

	Subscribers int    // live: not closed, collected, or with a context that has ended
	Lag         uint64 // of the slowest subscriber: its distance from the newest event
	Slowest     uint64 // where the slowest subscriber stands: the newest event that it has passed; Newest if there is none

	Resyncs uint64 // gaps that subscribers met, reported to them or replayed

	SourceFailures uint64 // reads of the Source that failed
	SourceErr      error  // the last of them, until a read succeeds
}

// Stats returns the topic's statistics. It looks at each subscription, so it is for scrapes and debug pages.
func (t *Topic[T]) Stats() Stats {
	s := Stats{Resyncs: t.resyncs.Load()}
	slowest := ^uint64(0)
	for m := range t.members.live() {
		s.Subscribers++
		slowest = min(slowest, m.cursor.Load())
	}
	s.Newest = t.log.newest.Load() // after the cursors, which it is ahead of
	s.Oldest = t.log.oldest(s.Newest)
	s.Published = s.Newest - (t.log.start - 1)
	s.Slowest = min(slowest, s.Newest)
	s.Lag = s.Newest - s.Slowest
	t.sources.mu.Lock()
	s.SourceFailures, s.SourceErr = t.sources.failures, t.sources.err
	t.sources.mu.Unlock()
	return s
}

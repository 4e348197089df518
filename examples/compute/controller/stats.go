package controller

import "slices"

// Stats is how much there is of what makes up an instance.
type Stats struct {
	History     int // commands that a replica which connects now would be sent, before compaction
	Dataflows   int
	Collections int
	Peeks       int      // that wait for an answer
	Connected   []string // names of the replicas that are connected, in order
	Counts      Counts
}

// Counts are what went over the streams since the instance began.
type Counts struct {
	Commands, Replays, Replayed          uint64 // given; times that a replica was brought up to date; and with how many in all
	PeekRows, PeekErrors, PeekCanceled   uint64 // responses by result
	PeekLate                             uint64 // responses that nobody waited for any more
	SubscribeBatches, SubscribeDropped   uint64 // responses by result
	CopyToResponses, Frontiers, Hydrated uint64 // responses
}

// Stats returns the instance's figures.
func (i *Instance) Stats() Stats {
	i.mu.Lock()
	defer i.mu.Unlock()
	s := Stats{
		History:     i.history.Len(),
		Dataflows:   len(i.dataflows),
		Collections: len(i.collections),
		Peeks:       len(i.peeks),
		Counts:      i.counts,
	}
	for name, r := range i.replicas {
		if len(r.processes) > 0 {
			s.Connected = append(s.Connected, name)
		}
	}
	slices.Sort(s.Connected)
	return s
}

package replica

import (
	"fmt"
	"math"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// What a source may ask for. A plan comes from a peer, so what its rows may take up has a limit.
const (
	maxKeys   = 1 << 20
	maxPeriod = 1 << 20
	maxValue  = 1 << 20
	maxTable  = 1 << 30
)

// A row is one row of a collection. Its value is shared between all who hold it and never changed.
type row struct {
	key   uint64
	value []byte
}

// A source is this process's share of a generated table. Key k changes at the times t with t % period == phase(k), so what it
// is at any time is known without walking there: a dataflow can begin at any as_of.
type source struct {
	seed, period     uint64
	minBytes, spread float64
	keys             []uint64
	byPhase          map[uint64][]uint64
}

func newSource(g *computepb.Generator, process, processes uint64) (*source, error) {
	switch {
	case g.GetKeys() == 0 || g.GetKeys() > maxKeys:
		return nil, fmt.Errorf("source has %d keys, want 1 to %d", g.GetKeys(), maxKeys)
	case g.GetPeriod() == 0 || g.GetPeriod() > maxPeriod:
		return nil, fmt.Errorf("source has period %d, want 1 to %d", g.GetPeriod(), maxPeriod)
	case g.GetMinBytes() == 0 || g.GetMaxBytes() < g.GetMinBytes() || g.GetMaxBytes() > maxValue:
		return nil, fmt.Errorf("source has values of %d to %d bytes, want 1 to %d", g.GetMinBytes(), g.GetMaxBytes(), maxValue)
	case g.GetKeys()*g.GetMaxBytes() > maxTable:
		return nil, fmt.Errorf("source has %d keys of up to %d bytes, want at most %d bytes in all", g.GetKeys(), g.GetMaxBytes(), maxTable)
	}
	s := &source{
		seed:     g.GetSeed(),
		period:   g.GetPeriod(),
		minBytes: float64(g.GetMinBytes()),
		spread:   float64(g.GetMaxBytes()) / float64(g.GetMinBytes()),
		byPhase:  make(map[uint64][]uint64),
	}
	for key := process; key < g.GetKeys(); key += processes {
		s.keys = append(s.keys, key)
		phase := s.phase(key)
		s.byPhase[phase] = append(s.byPhase[phase], key)
	}
	return s, nil
}

// snapshot calls yield with every row as it is at the time.
func (s *source) snapshot(time uint64, yield func(row)) {
	for _, key := range s.keys {
		yield(row{key, s.value(key, s.changed(key, time))})
	}
}

// changes calls yield with the rows that change at exactly the time.
func (s *source) changes(time uint64, yield func(row)) {
	for _, key := range s.byPhase[time%s.period] {
		yield(row{key, s.value(key, time)})
	}
}

func (s *source) phase(key uint64) uint64 { return mix(s.seed, key) % s.period }

// changed is the last time at or before the given one at which the key got its value; all keys have one at time 0.
func (s *source) changed(key, time uint64) uint64 {
	phase := s.phase(key)
	if time < phase {
		return 0
	}
	return time - (time-phase)%s.period
}

// words make values that compress about as well as the text in a table does: sixteen of them, each of the same length.
const (
	words = "amber   basalt  cedar   delta   ember   fjord   garnet  harbor  " +
		"indigo  juniper kelp    lagoon  maple   nectar  onyx    prairie "
	wordLength = 8
)

// value is what the key has held since it changed at the time.
func (s *source) value(key, time uint64) []byte {
	h := mix(mix(s.seed, key), time)
	size := int(s.minBytes * math.Pow(s.spread, float64(h>>11)/(1<<53)))
	value := make([]byte, 0, size+wordLength)
	for i := uint64(0); len(value) < size; i++ {
		h = mix(h, i)
		for n := h; n != 0 && len(value) < size; n >>= 4 {
			word := n & 0xf * wordLength
			value = append(value, words[word:word+wordLength]...)
		}
	}
	return value[:size:size]
}

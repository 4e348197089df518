package channel

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// Random operations against a map. Few enough names collide in the slots, and
// enough are removed that the table is rebuilt.
func TestTableBehavesLikeAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	tab, model := newTable(), make(map[string]*Conn)
	for step := range 20000 {
		target := strconv.Itoa(random.IntN(300))
		switch random.IntN(3) {
		case 0:
			c := &Conn{target: target, hash: tab.hash(target)}
			tab.put(c)
			model[target] = c
		case 1:
			c := model[target]
			if c == nil {
				c = &Conn{target: target, hash: tab.hash(target)}
			}
			if got, want := tab.remove(c), model[target] == c; got != want {
				t.Fatalf("step %d: remove %s: %v, want %v", step, target, got, want)
			}
			delete(model, target)
		default:
			if got := tab.get(target); got != model[target] {
				t.Fatalf("step %d: get %s: %p, want %p", step, target, got, model[target])
			}
		}
		if tab.size != len(model) {
			t.Fatalf("step %d: size %d, want %d", step, tab.size, len(model))
		}
		n, slots := 0, *tab.slots.Load()
		for i := range slots {
			if slots[i].Load() != nil {
				n++
			}
		}
		if n != tab.taken || n*4 > len(slots)*3 {
			t.Fatalf("step %d: %d of %d slots taken, counted %d", step, n, len(slots), tab.taken)
		}
	}
	for c := range tab.all() {
		if model[c.target] != c {
			t.Errorf("%s is left", c.target)
		}
		delete(model, c.target)
	}
	if len(model) > 0 {
		t.Errorf("lost: %v", model)
	}
}

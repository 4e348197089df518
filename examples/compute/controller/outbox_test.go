package controller

import (
	"testing"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

func TestAnOutboxKeepsWhatFitsAndSaysWhenThatIsNotAll(t *testing.T) {
	o := newOutbox()
	commands := make([]*computepb.ComputeCommand, maxBacklog)
	o.push(commands...)
	if got, _, full := o.take(); len(got) != maxBacklog || full {
		t.Errorf("%d commands, full: %v; want %d, false", len(got), full, maxBacklog)
	}
	o.push(commands[1:]...)
	o.push(commands[:1]...)
	o.push(commands[:1]...)
	if got, closed, full := o.take(); len(got) != maxBacklog || closed || !full {
		t.Errorf("%d commands, closed: %v, full: %v; want %d, false, true", len(got), closed, full, maxBacklog)
	}
}

func TestAClosedOutboxGivesWhatItHasAndTakesNothing(t *testing.T) {
	o := newOutbox()
	o.push(&computepb.ComputeCommand{})
	o.close()
	o.push(&computepb.ComputeCommand{})
	<-o.ready
	if got, closed, _ := o.take(); len(got) != 1 || !closed {
		t.Errorf("%d commands, closed: %v; want 1, true", len(got), closed)
	}
	if got, closed, _ := o.take(); len(got) != 0 || !closed {
		t.Errorf("%d commands, closed: %v; want 0, true", len(got), closed)
	}
}

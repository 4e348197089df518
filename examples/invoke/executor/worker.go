package executor

import (
	"fmt"
	"slices"

	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
	"github.com/otelproto/otelproto-go/examples/invoke/journal"
)

// apply runs one invocation on a worker's state. What it returns depends on nothing else, and is nothing before it is recorded.
func apply(
	component *invokepb.MetadataResponse, state journal.State, invocation *invokepb.Invocation,
) (journal.State, *invokepb.Outcome) {
	outcome := &invokepb.Outcome{Version: component.GetVersion()}
	state.Applied++
	name := ""
	switch invocation.GetFunction().(type) {
	case *invokepb.Invocation_Add:
		name = "add"
	case *invokepb.Invocation_Write:
		name = "write"
	case *invokepb.Invocation_Read:
		name = "read"
	}
	if !slices.Contains(component.GetExports(), name) {
		message := fmt.Sprintf("version %d has no function %q", component.GetVersion(), name)
		outcome.Result = &invokepb.Outcome_Failure{Failure: &invokepb.Failure{Message: message}}
		return state, outcome
	}
	switch f := invocation.GetFunction().(type) {
	case *invokepb.Invocation_Add:
		state.Total += f.Add.GetAmount()
		outcome.Result = &invokepb.Outcome_Total{Total: &invokepb.Total{Total: state.Total}}
	case *invokepb.Invocation_Write:
		state.Text = f.Write.GetText()
		outcome.Result = &invokepb.Outcome_Written{Written: &invokepb.Written{Bytes: uint64(len(state.Text))}}
	case *invokepb.Invocation_Read:
		outcome.Result = &invokepb.Outcome_Text{Text: &invokepb.Text{Text: state.Text}}
	}
	return state, outcome
}

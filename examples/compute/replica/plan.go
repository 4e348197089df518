package replica

import (
	"errors"
	"fmt"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// An operator turns a row into another, or drops it.
type operator func(row) (row, bool)

// newOperators compiles a plan. It returns an error for an operator that it doesn't know or that can't be run.
func newOperators(plan []*computepb.Operator) ([]operator, error) {
	operators := make([]operator, 0, len(plan))
	for i, p := range plan {
		op, err := newOperator(p)
		if err != nil {
			return nil, fmt.Errorf("operator %d: %w", i, err)
		}
		operators = append(operators, op)
	}
	return operators, nil
}

func newOperator(plan *computepb.Operator) (operator, error) {
	switch kind := plan.GetKind().(type) {
	case *computepb.Operator_Filter:
		modulus, remainder := kind.Filter.GetModulus(), kind.Filter.GetRemainder()
		if modulus == 0 {
			return nil, errors.New("filter has modulus 0, want 1 or more")
		}
		return func(r row) (row, bool) { return r, r.key%modulus == remainder }, nil

	case *computepb.Operator_Truncate:
		n := kind.Truncate.GetBytes()
		return func(r row) (row, bool) {
			if uint64(len(r.value)) > n {
				r.value = r.value[:n:n]
			}
			return r, true
		}, nil

	case *computepb.Operator_Lookup:
		labels := kind.Lookup.GetLabels()
		if len(labels) == 0 {
			return nil, errors.New("lookup has no labels, want 1 or more")
		}
		return func(r row) (row, bool) {
			label := labels[r.key%uint64(len(labels))]
			value := make([]byte, 0, len(label)+len(r.value))
			r.value = append(append(value, label...), r.value...)
			return r, true
		}, nil
	}
	return nil, fmt.Errorf("unknown kind %T", plan.GetKind())
}

func apply(operators []operator, r row) (row, bool) {
	for _, op := range operators {
		var ok bool
		if r, ok = op(r); !ok {
			return row{}, false
		}
	}
	return r, true
}

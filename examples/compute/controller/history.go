package controller

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/otelproto/otelproto-go/examples/compute/computepb"
)

// A History is the commands that an instance was given, as far as they still matter. The zero value is empty. It isn't safe for
// concurrent use. Commands belong to the history once appended and are never changed, since streams may still be sending them.
type History struct {
	commands  []*computepb.ComputeCommand
	compacted int // length after the last compaction
}

// Append adds a command, and compacts the history when it has doubled since the last time: the cost per command stays constant
// and the length within twice of what is needed.
func (h *History) Append(command *computepb.ComputeCommand) {
	h.commands = append(h.commands, command)
	if len(h.commands) >= 2*h.compacted+32 {
		h.Compact()
	}
}

// Len is the number of commands that the history holds.
func (h *History) Len() int { return len(h.commands) }

// Commands returns the commands in the order in which to replay them.
func (h *History) Commands() []*computepb.ComputeCommand { return slices.Clone(h.commands) }

// Compact replaces the commands by the fewest that bring an empty replica to the same state.
func (h *History) Compact() {
	var s summary
	for _, command := range h.commands {
		s.add(command)
	}
	h.commands = s.commands()
	h.compacted = len(h.commands)
}

// A summary is what a sequence of commands amounts to.
type summary struct {
	createTimely, createInstance, initialized *computepb.ComputeCommand
	parameters                                map[string]string
	dataflows                                 []*dataflowSummary // in the order of their creation
	exports                                   map[uint64]*exportSummary
	peeks                                     []*computepb.ComputeCommand // in order
}

type dataflowSummary struct {
	command   *computepb.ComputeCommand
	exports   []*exportSummary // those that weren't dropped
	scheduled bool
}

type exportSummary struct {
	dataflow *dataflowSummary
	export   *computepb.Export
	since    uint64
	writes   bool
}

func (s *summary) add(command *computepb.ComputeCommand) {
	switch kind := command.GetKind().(type) {
	case *computepb.ComputeCommand_CreateTimely:
		s.createTimely = command
	case *computepb.ComputeCommand_CreateInstance:
		s.createInstance = command
	case *computepb.ComputeCommand_InitializationComplete:
		s.initialized = command
	case *computepb.ComputeCommand_UpdateConfiguration:
		if s.parameters == nil {
			s.parameters = make(map[string]string)
		}
		maps.Copy(s.parameters, kind.UpdateConfiguration.GetParameters())
	case *computepb.ComputeCommand_CreateDataflow:
		s.addDataflow(command, kind.CreateDataflow.GetDataflow())
	case *computepb.ComputeCommand_Schedule:
		for _, d := range s.dataflows {
			if d.plan().GetId() == kind.Schedule.GetDataflow() {
				d.scheduled = true
			}
		}
	case *computepb.ComputeCommand_AllowCompaction:
		s.allowCompaction(kind.AllowCompaction)
	case *computepb.ComputeCommand_AllowWrites:
		if e := s.exports[kind.AllowWrites.GetCollection()]; e != nil {
			e.writes = true
		}
	case *computepb.ComputeCommand_Peek:
		s.peeks = append(s.peeks, command)
	case *computepb.ComputeCommand_CancelPeek:
		uuid := string(kind.CancelPeek.GetUuid())
		s.peeks = slices.DeleteFunc(s.peeks, func(p *computepb.ComputeCommand) bool {
			return string(p.GetPeek().GetUuid()) == uuid
		})
	}
}

func (s *summary) addDataflow(command *computepb.ComputeCommand, plan *computepb.Dataflow) {
	d := &dataflowSummary{command: command}
	s.dataflows = append(s.dataflows, d)
	if s.exports == nil {
		s.exports = make(map[uint64]*exportSummary)
	}
	for _, export := range plan.GetExports() {
		e := &exportSummary{dataflow: d, export: export, since: plan.GetAsOf()}
		d.exports = append(d.exports, e)
		s.exports[export.GetCollection()] = e
	}
}

func (s *summary) allowCompaction(c *computepb.AllowCompaction) {
	e := s.exports[c.GetCollection()]
	if e == nil {
		return
	}
	if c.Frontier != nil {
		e.since = max(e.since, c.GetFrontier())
		return
	}
	delete(s.exports, c.GetCollection())
	d := e.dataflow
	d.exports = slices.DeleteFunc(d.exports, func(other *exportSummary) bool { return other == e })
	if len(d.exports) == 0 {
		s.dataflows = slices.DeleteFunc(s.dataflows, func(other *dataflowSummary) bool { return other == d })
	}
}

func (s *summary) commands() []*computepb.ComputeCommand {
	var commands []*computepb.ComputeCommand
	add := func(c *computepb.ComputeCommand) { commands = append(commands, c) }
	if s.createTimely != nil {
		add(s.createTimely)
	}
	if s.createInstance != nil {
		add(s.createInstance)
	}
	if s.parameters != nil {
		add(updateConfiguration(s.parameters))
	}
	for _, d := range s.dataflows {
		create := d.compacted()
		add(create)
		asOf := create.GetCreateDataflow().GetDataflow().GetAsOf()
		if d.scheduled {
			add(schedule(d.plan().GetId()))
		}
		for _, e := range d.exports {
			if e.since > asOf {
				add(allowCompaction(e.export.GetCollection(), new(e.since)))
			}
			if e.writes {
				add(allowWrites(e.export.GetCollection()))
			}
		}
	}
	commands = append(commands, s.peeks...)
	if s.initialized != nil {
		add(s.initialized)
	}
	return commands
}

func (d *dataflowSummary) plan() *computepb.Dataflow {
	return d.command.GetCreateDataflow().GetDataflow()
}

// compacted is the command that creates the dataflow with the exports that are left, as of the first time that one of them can
// still be read at.
func (d *dataflowSummary) compacted() *computepb.ComputeCommand {
	asOf := d.exports[0].since
	for _, e := range d.exports {
		asOf = min(asOf, e.since)
	}
	plan := d.plan()
	if asOf == plan.GetAsOf() && len(d.exports) == len(plan.GetExports()) {
		return d.command
	}
	command := proto.CloneOf(d.command)
	plan = command.GetCreateDataflow().GetDataflow()
	plan.AsOf = asOf
	plan.Exports = nil
	for _, e := range d.exports {
		plan.Exports = append(plan.Exports, e.export)
	}
	return command
}

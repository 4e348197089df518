package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startTimeout is how long a program may take until it serves.
const startTimeout = 30 * time.Second

// Process is a program that runs until Stop.
type Process struct {
	name    string
	command *exec.Cmd
	log     string
	ended   chan struct{}
	err     error // valid when ended is closed
}

// Start runs a program whose output goes to a file in dir.
func Start(dir, name, path string, env []string, args ...string) (*Process, error) {
	p := &Process{
		name:    name,
		command: exec.CommandContext(context.Background(), path, args...), // it runs until Stop
		log:     filepath.Join(dir, name+".log"),
		ended:   make(chan struct{}),
	}

	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}

	p.command.Stdout, p.command.Stderr = out, out
	p.command.Env = append(os.Environ(), env...)
	p.command.SysProcAttr = attributes()

	if err := p.command.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}

	go func() {
		defer close(p.ended)

		p.err = errors.Join(p.command.Wait(), out.Close())
	}()

	return p, nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err gives an error with the last lines of its output if the process ended other than well. It waits for the end.
func (p *Process) Err() error {
	<-p.ended

	if p.err != nil {
		return fmt.Errorf("pipeline: %s ended: %w\n%s", p.name, p.err, p.Log())
	}

	return nil
}

// Stop asks the process to end, and kills it if it doesn't in ten seconds. It may be called more than once.
func (p *Process) Stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM)

	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// Kill ends the process at once.
func (p *Process) Kill() {
	_ = p.command.Process.Kill()
	<-p.ended
}

// Log gives the last lines of what the process wrote.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}

	lines := strings.Split(strings.TrimSpace(string(text)), "\n")

	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// ready returns when serves says so. If the process ends before, the error has what it wrote.
func (p *Process) ready(ctx context.Context, serves func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	if err := Poll(ctx, func() error {
		select {
		case <-p.ended:
			return errEnded
		default:
			return serves()
		}
	}); err != nil {
		log := p.Log()
		p.Kill()

		return fmt.Errorf("pipeline: %s didn't start: %w\n%s", p.name, err, log)
	}

	return nil
}

var errEnded = errors.New("it ended")

// Poll calls f until it gives nil or the context ends; the error is then f's last.
func Poll(ctx context.Context, f func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()

	var err error

	for {
		next := f()
		if next == nil || errors.Is(next, errEnded) {
			return next
		}

		if err == nil || ctx.Err() == nil { // rather than that the context ended
			err = next
		}

		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		}
	}
}

// dial tells whether something listens at an address.
func dial(ctx context.Context, addr string) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}

	return c.Close()
}

// CheckFree says what to do if something listens at an address already.
func CheckFree(addr string) error {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("pipeline: %s is taken: end what listens there, or choose another address (%w)", addr, err)
	}

	return lis.Close()
}

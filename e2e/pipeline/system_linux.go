package pipeline

import (
	"errors"
	"os"
	"syscall"
)

// attributes make a process of its own group, so that Ctrl-C reaches it only through Stop, and one that can't outlive this process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// lock waits until no other process has the lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}

	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return func() { f.Close() }, nil // which lets the lock go
}

package pipeline

import "syscall"

// attributes make a process of its own group, so that Ctrl-C reaches it only through Stop, and one that can't outlive this process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

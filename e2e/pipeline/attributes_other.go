//go:build !linux

package pipeline

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

//go:build unix

package oncerun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchdog is a second process that kills the group of a command when this process cannot, because
// it was stopped or killed. Its orders come by a pipe. An order names the group, and the time to
// kill it, by [bootTime], unless a later order comes first. The watchdog kills the group at the end
// of the pipe, too. It is in a session of its own, so that no terminal stops it.
//
// A group whose number is in an order has not ended, or its end was noticed just now: the kernel
// does not reuse the number of a group while one of its processes lives, or its leader was not
// waited for. Only this process waits for the leader. As soon as all processes of the group have
// ended, this process ends the watchdog.
type watchdog struct {
	args []string // of [Options]
	name string
	errs io.Writer // of the process, if it is a file

	mu     sync.Mutex
	cmd    *exec.Cmd // nil: none runs
	orders *os.File
	group  int           // 0: it is not known yet
	killAt time.Duration // 0: there is no lease yet
}

// orderTimeout is how long an order may take to be written. It takes longer if the watchdog
// is stopped, and has not read thousands of them.
const orderTimeout = 100 * time.Millisecond

// start starts the watchdog before there is a group: if this process is stopped before
// [watchdog.guard], the watchdog looks for the group.
func (d *watchdog) start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.startLocked()
}

// startLocked writes the order before the watchdog starts: this process may be stopped right after
// the start.
func (d *watchdog) startLocked() error {
	path, err := ownPath()
	if err != nil {
		return err
	}
	in, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if d.killAt != 0 {
		if _, err := orders.Write(encodeOrder(d.group, d.killAt)); err != nil {
			return errors.Join(err, orders.Close())
		}
	}
	cmd := &exec.Cmd{
		Path: path, Args: slices.Concat(d.args, []string{"--", d.name}), Env: []string{"GOMAXPROCS=1"}, Dir: "/",
		Stdin: in, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if file, ok := d.errs.(*os.File); ok {
		cmd.Stderr = file
	}
	if err := cmd.Start(); err != nil {
		_ = orders.Close()
		return err
	}
	d.cmd, d.orders = cmd, orders
	return nil
}

// guard has the process watch over a group from now on.
func (d *watchdog) guard(group int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.group = group
	d.order()
}

// extend sets when the group is to be killed.
func (d *watchdog) extend(killAt time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killAt = killAt
	d.order()
}

// isDue reports whether the group should have been killed by now.
func (d *watchdog) isDue() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.killAt != 0 && bootTime() >= d.killAt
}

// order sends an order. It starts a new watchdog if the old one was killed, or its start failed.
func (d *watchdog) order() {
	if d.killAt == 0 {
		return
	}
	if d.cmd != nil {
		_ = d.orders.SetWriteDeadline(time.Now().Add(orderTimeout)) // a pipe has deadlines
		if _, err := d.orders.Write(encodeOrder(d.group, d.killAt)); err == nil {
			return
		}
		d.stop()
	}
	if d.group != 0 {
		_ = d.startLocked() // the next order tries again
	}
}

// end ends the watchdog, and leaves the rest of the group alone.
func (d *watchdog) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.group = 0
	if d.cmd != nil {
		d.stop()
	}
}

// stop kills the process before the pipe ends, also if it is stopped.
func (d *watchdog) stop() {
	_ = d.cmd.Process.Kill()
	cmd := d.cmd
	Within(messageTimeout, func() { _ = cmd.Wait() })
	_ = d.orders.Close()
	d.cmd = nil
}

// orderSize is small enough for a pipe to keep an order in one piece.
const orderSize = 16

func encodeOrder(group int, killAt time.Duration) []byte {
	order := binary.NativeEndian.AppendUint64(nil, uint64(group))
	return binary.NativeEndian.AppendUint64(order, uint64(killAt))
}

func decodeOrder(order []byte) (group int, killAt time.Duration) {
	return int(binary.NativeEndian.Uint64(order)), time.Duration(binary.NativeEndian.Uint64(order[8:]))
}

// maxPoll is the longest sleep of the watchdog. The clock of the sleep may stand still while the
// machine is suspended; the clock of the orders does not.
const maxPoll = time.Second

// Watch is the watchdog: it reads orders from standard input. It reads a new order before it
// carries out the previous order: a watchdog that was stopped itself may find both.
func Watch(name string, errs io.Writer) error {
	signal.Ignore(slices.Concat(endSignals, otherSignals)...) // systemd sends signals to all processes of a unit
	parent, group, killAt, order := unix.Getppid(), 0, time.Duration(0), make([]byte, orderSize)
	for {
		wait := maxPoll
		if killAt != 0 {
			wait = max(0, min(wait, killAt-bootTime()))
		}
		ready, err := unix.Poll([]unix.PollFd{{Events: unix.POLLIN}}, int((wait + time.Millisecond - 1).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case ready > 0:
			n, err := unix.Read(0, order)
			if n == orderSize {
				group, killAt = decodeOrder(order)
			} else if !errors.Is(err, unix.EINTR) {
				return killGroup(group, name, "activityd has ended without it", errs)
			}
		case killAt != 0 && bootTime() >= killAt:
			if group == 0 {
				group = groupOfChild(parent)
			}
			return killGroup(group, name, "its lease was not extended", errs)
		}
	}
}

// killGroup kills a group, if there is one, and says why.
func killGroup(group int, name, why string, errs io.Writer) error {
	if group == 0 {
		return nil
	}
	if err := syscall.Kill(-group, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
		return nil // it has ended
	} else if err != nil {
		return fmt.Errorf("%s: the watchdog cannot kill the command: %w", name, err)
	}
	_, err := fmt.Fprintf(errs, "activityd: %s: the watchdog has killed the command: %s\n", name, why)
	return err
}

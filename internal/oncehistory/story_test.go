package oncehistory_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// String tells all operations of a history, in the order in which they were called.
func (h *history) String() string {
	var b strings.Builder
	for _, o := range h.ops {
		fmt.Fprintf(&b, "  %s\n", line(o))
	}
	return b.String()
}

// line tells an operation: its times of call and answer, its client, its request and answer.
func line(o porcupine.Operation) string {
	end := "-"
	if o.Return < endOfTime {
		end = fmt.Sprintf("%.3f", time.Duration(o.Return).Seconds()*1000)
	}
	return fmt.Sprintf("%9.3f %9s ms  client %d: %s", time.Duration(o.Call).Seconds()*1000, end, o.ClientId,
		describe(o.Input.(request), o.Output.(answer)))
}

// refuted tells a history for which there is no order: all operations that count, and the
// longest order of a part of them.
func (h *history) refuted(m porcupine.Model) error {
	var b strings.Builder
	fmt.Fprintf(&b, "history %d: all that counts:\n%s", h.seed, h)
	_, info := porcupine.CheckOperationsVerbose(m, h.ops, 10*time.Second)
	var longest []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations()[0] {
		if len(part) > len(longest) {
			longest = part
		}
	}
	fmt.Fprintf(&b, "no order of it agrees with the model; the longest of a part:\n")
	state := m.Init()
	for _, o := range longest {
		_, state = m.Step(state, o.Input, o.Output)
		fmt.Fprintf(&b, "  %s\n", line(o))
	}
	fmt.Fprintf(&b, "  then the state is %s, and what comes next fits no more\n", m.DescribeState(state))
	return errors.New(b.String())
}

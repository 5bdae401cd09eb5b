package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/strictjson"
)

func newPushImport() *cobra.Command {
	c, every := &config{}, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "import {FILE | -}",
		Short: "Register many devices that another system knew",
		Long: "Register the devices of a file, or with - of standard input: one JSON object a line, as PUT\n" +
			"/v1/users/{id}/devices takes it, with the user_id of the member, and, if it is known, when the\n" +
			"device was registered: registered_at, in unix seconds. They are committed in batches of up to 500\n" +
			"lines. Blank lines are skipped. A line that is wrong, or whose member does not exist, is reported\n" +
			"with its number, and the others go on.\n\n" +
			"Of the registrations of one address the latest counts: what the app or the browser did since stays as\n" +
			"it is, and a line without registered_at replaces nothing. So after an interruption, import the same file\n" +
			"again. More than 50 devices of a member are too many: the latest stay. While MySQL is away, a batch is\n" +
			"tried again for a minute.\n\n" +
			"The exit code is 0 when all lines were good; else 1.",
		Example: "  activityd push import devices.ndjson    # {\"user_id\":\"123\",\"platform\":\"fcm\",\"token\":\"…\",\"language\":\"de\"}, …\n" +
			"  zcat devices.ndjson.gz | activityd push import -",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			in := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("FILE: %w", err)
				}
				defer func() { _ = f.Close() }() // it was only read
				in = f
			}
			db, err := openMySQL(c, c.mysqlConnections)
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }() // all was committed
			if err := schema.Compatible(cmd.Context(), db); err != nil {
				return err
			}
			i := &importing{
				progress: newProgress(cmd.ErrOrStderr(), every, -1, "lines"), store: push.NewMySQL(db), notes: cmd.ErrOrStderr(),
				platforms: c.push.platforms(), checks: make(map[push.Platform]addressCheck), became: make(map[push.Import]int),
			}
			for _, kind := range i.platforms {
				i.checks[kind.Platform] = kind.NewCheck(c.push.value)
			}
			return i.run(cmd.Context(), in, cmd.OutOrStdout())
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
	}
	f := cmd.Flags()
	progressFlag(f, &every)
	c.mysqlFlags(f)
	c.push.addressFlags(f)
	return cmd
}

const (
	importBatch = 500                    // lines in one transaction
	importFlush = 500 * time.Millisecond // a batch waits no longer for more lines
)

// importing registers the devices of lines. Its memory is that of a batch.
type importing struct {
	*progress

	store     *push.MySQL
	platforms []push.Kind
	checks    map[push.Platform]addressCheck
	notes     io.Writer
	became    map[push.Import]int
	bad       int // lines
}

type addressCheck func(ctx context.Context, a push.Address) error

// rawLine is a line of an input, from 1 on.
type rawLine struct {
	number int
	text   []byte
	err    error // why it is none; then, if it is the last, the input cannot be read any further
}

// errLineTooLong is the error for a line that is passed over.
var errLineTooLong = fmt.Errorf("has more than %d bytes", maxLine)

// readRaw returns the lines of an input that are not blank. They are read in a goroutine of their own, as by readLines;
// a line that is too long is passed over.
func readRaw(ctx context.Context, in io.Reader) <-chan rawLine {
	lines := make(chan rawLine, 100)
	go func() {
		defer close(lines)
		reader := bufio.NewReaderSize(in, maxLine)
		for number := 1; ; number++ {
			text, err := reader.ReadSlice('\n')
			l := rawLine{number: number, text: bytes.Clone(bytes.TrimSpace(text))}
			for errors.Is(err, bufio.ErrBufferFull) {
				l.err = errLineTooLong
				_, err = reader.ReadSlice('\n')
			}
			end := err != nil
			if end && !errors.Is(err, io.EOF) {
				l.err = fmt.Errorf("read the input: %w", err)
			}
			if l.err != nil || len(l.text) > 0 {
				select {
				case lines <- l:
				case <-ctx.Done():
					return
				}
			}
			if end {
				return
			}
		}
	}()
	return lines
}

// run registers all. It returns an error if a line was bad, or the rest was not read.
func (i *importing) run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the reading, unless it hangs
	lines := readRaw(ctx, in)
	var err error
	for more := true; more && err == nil; {
		var batch []rawLine
		batch, more = gatherRaw(ctx, lines)
		if err = i.write(ctx, batch); err == nil && ctx.Err() != nil {
			err = errSignalled
		}
	}
	if err != nil {
		return fmt.Errorf("%w\n%s; import the same again to go on", err, i.sum())
	}
	if i.bad > 0 {
		return fmt.Errorf("%d lines were bad; %s", i.bad, i.sum())
	}
	_, err = fmt.Fprintln(out, i.sum())
	return err
}

// sum says what became of the lines that were good.
func (i *importing) sum() string {
	return fmt.Sprintf("devices added: %d, replaced: %d, known: %d, in excess of %d of a member: %d",
		i.became[push.ImportAdded], i.became[push.ImportReplaced], i.became[push.ImportKnown], push.MaxDevices, i.became[push.ImportExcess])
}

// gatherRaw returns the lines of one batch, those that come in time, and whether there may be more.
func gatherRaw(ctx context.Context, lines <-chan rawLine) (batch []rawLine, more bool) {
	var late <-chan time.Time // for a batch that has begun
	for len(batch) < importBatch {
		select {
		case l, more := <-lines:
			if !more {
				return batch, false
			}
			if late == nil {
				late = time.After(importFlush)
			}
			batch = append(batch, l)
		case <-late:
			return batch, true
		case <-ctx.Done():
			return nil, false
		}
	}
	return batch, true
}

// write registers the devices of a batch, and reports its bad lines.
func (i *importing) write(ctx context.Context, lines []rawLine) error {
	var batch []push.Imported
	var numbers []int
	for _, l := range lines {
		d, err := i.parse(ctx, l)
		if ctx.Err() != nil {
			return errSignalled
		}
		if err != nil {
			i.report(l.number, err)
			continue
		}
		batch, numbers = append(batch, d), append(numbers, l.number)
	}
	var became []push.Import
	if len(batch) > 0 {
		if err := untilThere(ctx, i.notes, func(ctx context.Context) (err error) {
			became, err = i.store.Import(ctx, batch)
			return err
		}); err != nil {
			return err
		}
	}
	for at, b := range became {
		i.became[b]++
		if b == push.ImportNoMember {
			i.report(numbers[at], fmt.Errorf("user_id: there is no member %s", batch[at].Member))
		}
	}
	i.add(len(lines))
	return nil
}

func (i *importing) report(number int, err error) {
	i.bad++
	fmt.Fprintf(i.notes, "line %d: %v\n", number, err)
}

// parse reads a device. The error does not show its address.
func (i *importing) parse(ctx context.Context, l rawLine) (d push.Imported, err error) {
	if l.err != nil {
		return d, l.err
	}
	value, err := strictjson.Parse(l.text)
	if err != nil {
		return d, err
	}
	r := &strictjson.Reader{Root: "the line"}
	o, ok := r.Object("", value)
	if !ok {
		return d, r.Err()
	}
	o.Only(append([]string{"user_id", "registered_at"}, api.RegistrationFields(i.platforms)...)...)
	d.Member = o.MemberID("user_id", true)
	if seconds, given := o.Whole("registered_at", 1, time.Now().Unix()); given {
		d.Registered = time.Unix(seconds, 0)
	}
	device := api.ReadRegistration(o, i.platforms)
	if err := r.Err(); err != nil {
		return d, err
	}
	d.Platform, d.Address, d.Language = device.Kind.Platform, device.Address, device.Language
	if err := i.checks[d.Platform](ctx, d.Address); err != nil {
		return d, fmt.Errorf("%s: %w", device.Kind.Fields[0], err)
	}
	return d, nil
}

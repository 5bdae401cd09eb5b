package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// longestLine is how many bytes a line may have: a task has less than 200.
const longestLine = 64 << 10

var errLongLine = fmt.Errorf("the line has more than %d bytes, and no task has", longestLine)

// line is one line of the input that is not blank.
type line struct {
	number     int   // from 1 on
	begin, end int64 // its place in the input, in bytes
	task       queue.New
	err        error // why it is no task
}

// lineReader reads tasks, one a line, of which it never holds more than one.
type lineReader struct {
	in     *bufio.Reader
	number int
	end    int64
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(r, longestLine)}
}

// next returns the next line that is not blank; io.EOF after the last one, or
// another error when the input cannot be read.
func (l *lineReader) next() (line, error) {
	for {
		begin := l.end
		text, err := l.read()
		read := line{number: l.number, begin: begin, end: l.end}
		switch {
		case errors.Is(err, errLongLine):
			read.err = err
			return read, nil
		case err != nil:
			return line{}, err
		case len(bytes.TrimSpace(text)) == 0:
			continue
		}
		read.task, read.err = tasks.ParseLine(text)
		return read, nil
	}
}

// read returns one line, which holds until the next call. One that is too long is
// passed over.
func (l *lineReader) read() ([]byte, error) {
	text, err := l.in.ReadSlice('\n')
	l.end += int64(len(text))
	if len(text) > 0 || err == nil {
		l.number++
	}
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, l.passOver()
	case errors.Is(err, io.EOF) && len(text) > 0:
		return text, nil // the last line need not end
	}
	return text, err
}

// passOver reads to the end of a line that is too long.
func (l *lineReader) passOver() error {
	for {
		text, err := l.in.ReadSlice('\n')
		l.end += int64(len(text))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		return errLongLine
	}
}

// lines reads the lines from the given one on, in a goroutine of its own, because
// reading cannot be interrupted: a terminal or a pipe may say nothing for hours.
// The channel is closed at the end of the input, or of ctx. Then failed returns
// why the input could not be read, if that was so.
func (l *lineReader) lines(ctx context.Context, from int) (out <-chan line, failed func() error) {
	lines := make(chan line, 100)
	var err error
	go func() {
		defer close(lines)
		if err = l.skip(ctx, from); err == nil {
			err = l.send(ctx, lines)
		}
	}()
	return lines, func() error {
		if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
			return fmt.Errorf("read the input after line %d: %w", l.number, err)
		}
		return nil
	}
}

// skip passes over the lines before the given one.
func (l *lineReader) skip(ctx context.Context, before int) error {
	for l.number < before-1 && ctx.Err() == nil {
		if _, err := l.read(); err != nil && !errors.Is(err, errLongLine) {
			return err
		}
	}
	return ctx.Err()
}

func (l *lineReader) send(ctx context.Context, lines chan<- line) error {
	for {
		read, err := l.next()
		if err != nil {
			return err
		}
		select {
		case lines <- read:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// extent tells how much of an input is done, by its bytes.
type extent struct {
	size  int64 // of the input; 0: unknown
	begin int64 // where the first line begins; -1: there was none yet
}

// total estimates how many things there will be, when n of them end with last, the
// last line of a batch that begins with first; -1 when nobody knows.
func (e *extent) total(n int, first, last line) int64 {
	if e.begin < 0 {
		e.begin = first.begin
	}
	if e.size == 0 {
		return -1
	}
	return int64(n) + int64(float64(n)*float64(e.size-last.end)/float64(last.end-e.begin))
}

// sizeOf returns how many bytes are left to read of a file, or 0 when nobody
// knows, as with a pipe.
func sizeOf(r io.Reader) int64 {
	f, ok := r.(*os.File)
	if !ok {
		return 0
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return info.Size() - at
}

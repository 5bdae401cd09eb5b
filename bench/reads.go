package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// overHTTP is activityd, as a site asks it.
const overHTTP = "activityd, over HTTP"

// benchReads compares a read over HTTP with plain SQL by a prepared pool of connections. It
// compares the reads of viewers by their number of contacts, and counts how many reads fit.
func (b *bench) benchReads(ctx context.Context) error {
	if err := b.makeSite(ctx); err != nil {
		return err
	}
	err := b.with(func(p *program) error {
		c, err := dial(ctx, p.addr)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		first := make(map[string]*samples)
		for i, v := range b.size.viewers() {
			all, err := b.besidePlain(ctx, c, v)
			if err != nil {
				return fmt.Errorf("a viewer with %s: %w", v.name, err)
			}
			if i == 0 {
				first = all
			} else if v.contacts == b.size.contacts[len(b.size.contacts)-1] {
				b.report.Figures = append(b.report.Figures, figure{
					Part: "A read, by the viewer's contacts", Name: v.name + ", p50", Unit: "ms", Value: spreadOf(all[overHTTP].times["p50"]),
					Against: "that with " + b.size.viewers()[0].name, Ratio: ratio(all[overHTTP].times["p50"], first[overHTTP].times["p50"]), Bound: atMost(1.05),
				})
			}
		}
		return b.manyReads(ctx, p)
	}, "ACTIVITYD_ROLE=api")
	if err != nil {
		return err
	}
	return b.with(func(p *program) error { return b.benchBroadcasts(ctx, p) })
}

// besidePlain compares the ways to ask for a viewer.
func (b *bench) besidePlain(ctx context.Context, c *conn, v viewer) (map[string]*samples, error) {
	ways := map[string]func(context.Context) (uint64, error){overHTTP: func(context.Context) (uint64, error) {
		contact, source, err := c.read(v.id)
		if err == nil && source != "index" {
			err = fmt.Errorf("the answer is from the %s", source)
		}
		return contact, err
	}}
	names := []string{overHTTP}
	for _, way := range site.PlainSQL(b.db) {
		names = append(names, way.Name)
		ways[way.Name] = func(ctx context.Context) (uint64, error) {
			album, err := way.Ask(ctx, contacts.Viewer{ID: member.ID(v.id)}, shown)
			if err != nil || album.Contact == nil {
				return 0, err
			}
			return uint64(album.Contact.ID), nil
		}
	}
	want, err := ways[names[1]](ctx)
	if err != nil {
		return nil, err
	}
	var list []contender
	for _, name := range names {
		list = append(list, contender{name: name, run: func(ctx context.Context) (o outcome, err error) {
			for start := time.Now(); o.ops == 0 || o.ops < b.size.reads && time.Since(start) < b.size.longest; o.ops++ {
				began := time.Now()
				contact, err := ways[name](ctx)
				if err != nil || contact != want || want == 0 {
					return o, fmt.Errorf("the contact is %d, want %d: %w", contact, want, err)
				}
				o.times = append(o.times, milliseconds(time.Since(began)))
			}
			return o, nil
		}})
	}
	all, err := b.rounds(ctx, list...)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		f := figure{Part: "A read beside plain SQL", Name: v.name + ": " + name + ", p50", Unit: "ms", Value: spreadOf(all[name].times["p50"]), Micros: spreadOf(all[name].micros).Median}
		if name != overHTTP {
			f.Against, f.Ratio = overHTTP, ratio(all[name].times["p50"], all[overHTTP].times["p50"])
		}
		b.report.Figures = append(b.report.Figures, f)
	}
	return all, nil
}

// manyReads reads for all readers, beside the same two questions by hand.
func (b *bench) manyReads(ctx context.Context, p *program) error {
	conns, closeAll, err := dials(ctx, p.addr, 16)
	if err != nil {
		return err
	}
	defer closeAll()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bareProgram, err := b.start(exec.Command(self, bareCommand))
	if err != nil {
		return err
	}
	defer bareProgram.Close() //nolint:errcheck // it holds nothing
	barely, closeBare, err := dials(ctx, bareProgram.addr, 16)
	if err != nil {
		return err
	}
	defer closeBare()
	if err := b.prepareBare(ctx); err != nil {
		return err
	}
	n := 10 * b.size.reads
	many := func(name string, p *program, read func(ctx context.Context, worker, reader int) error) contender {
		return contender{name: name, prepare: func(context.Context) error { b.program = p; return nil }, run: func(ctx context.Context) (outcome, error) {
			times := make([]float64, n)
			return outcome{n, times}, parallel(ctx, len(conns), n, func(ctx context.Context, worker, i int) error {
				began := time.Now()
				err := read(ctx, worker, i*7919%b.size.readers)
				times[i] = milliseconds(time.Since(began))
				return err
			})
		}}
	}
	for _, c := range conns { // a connection without a request is closed after some seconds
		if _, err := c.must(http.MethodGet, readerPath(0), "", http.StatusOK); err != nil {
			return err
		}
	}
	ask := func(conns []*conn) func(ctx context.Context, worker, reader int) error {
		return func(_ context.Context, worker, reader int) error {
			status, answer, err := conns[worker].do(http.MethodGet, readerPath(reader), "")
			for err == nil && status == http.StatusServiceUnavailable { // the machine stalled, and reads were refused
				status, answer, err = conns[worker].do(http.MethodGet, readerPath(reader), "")
			}
			if err == nil && !bytes.Contains(answer, shownUploader) {
				err = fmt.Errorf("%d %s", status, answer)
			}
			return err
		}
	}
	const part, bare, handler = "Reads of all members in turn, 16 at a time", "by hand in a loop, without HTTP", "by hand in a net/http handler, in a process of its own"
	all, err := b.rounds(ctx, many(bare, p, func(ctx context.Context, _, reader int) error {
		_, err := b.bareRead(ctx, uint64(firstMember+reader), shown)
		return err
	}), many(handler, bareProgram, ask(barely)), many(overHTTP, p, ask(conns)))
	if err != nil {
		return err
	}
	b.program = p
	b.report.rates(part, "reads/s", all, map[string]bound{overHTTP: atLeast(0.7)}, bare, handler, overHTTP)
	b.report.Figures = append(b.report.Figures, figure{
		Part: part, Name: "the same", Unit: "reads/s", Value: spreadOf(all[overHTTP].rates),
		Against: handler, Ratio: ratio(all[overHTTP].rates, all[handler].rates), Bound: atLeast(0.8),
	})
	b.report.times(part, all[overHTTP], overHTTP, nil)
	return nil
}

// readerPath is that of the read of the i-th reader.
func readerPath(i int) string {
	return fmt.Sprintf("/v1/users/%d/recent-contact-photos?limit=%d", firstMember+i, shown)
}

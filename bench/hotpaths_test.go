package main

import (
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// The benchmarks are for benchstat, to compare two states of the code:
//
//	go test -run '^$' -bench . -count 10 . > before.txt

func BenchmarkHotPaths(b *testing.B) {
	o := quickOptions()
	o.parts = allParts()
	s := setup(b, o)
	site := s.options.site
	if err := s.fill(b.Context(), append(site.viewers(), site.refilled()...)); err != nil {
		b.Fatal(err)
	}
	few, many := contacts.Viewer{ID: site.viewer(0)}, contacts.Viewer{ID: site.viewer(len(site.Contacts) - 1)}
	standing := make([]member.ID, stars)
	for i := range standing {
		standing[i] = member.ID(firstStar + i)
	}
	users := site.refilled()[:refillBatch]
	var additions []index.Addition
	for id := site.firstFollower(); id < site.firstFollower()+1000; id++ {
		additions = append(additions, index.Addition{Member: id, Entry: index.Entry{Contact: site.uploader(0), Score: epoch}})
	}
	if err := writeSets(b.Context(), s.client, site.firstFollower(), site.firstFollower()+999); err != nil {
		b.Fatal(err)
	}
	read := s.read()
	page := []contacts.FollowerPage{{Of: site.uploader(0)}}
	for _, path := range []struct {
		name string
		do   func() error
	}{
		{"Read/few", func() error { return read(b.Context(), few) }},
		{"Read/many", func() error { return read(b.Context(), many) }},
		{"Candidates", func() error { _, _, err := s.index.Candidates(b.Context(), many.ID); return err }},
		{"VisiblePhotos", func() error { _, err := s.store.VisiblePhotos(b.Context(), many, firstStar, shown); return err }},
		{"Standings", func() error { _, err := s.store.Standings(b.Context(), many, standing); return err }},
		{"Walk", func() error { _, err := s.store.Walk(b.Context(), many, shown); return err }},
		{"Add/1000", func() error {
			for i := range additions {
				additions[i].Score++
			}
			_, failed := s.index.Add(b.Context(), additions)
			for _, err := range failed {
				return err
			}
			return nil
		}},
		{"FollowerPage/1000", func() error { _, err := s.store.FollowerPages(b.Context(), page, 1000); return err }},
		{"Refill/128", func() error { return s.fill(b.Context(), users) }},
	} {
		b.Run(path.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := path.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

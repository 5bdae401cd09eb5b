package push

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"sync"
	"time"
)

// zoneInfo is the IANA database: lib/time/zoneinfo.zip of Go, unchanged. Package time/tzdata has the same bytes, but
// time.LoadLocation reads the files of the host first, by the name as a path: zones and their names would differ between hosts.
//
//go:embed zoneinfo.zip
var zoneInfo []byte

var zoneArchive = sync.OnceValue(func() *zip.Reader {
	archive, err := zip.NewReader(bytes.NewReader(zoneInfo), int64(len(zoneInfo)))
	if err != nil {
		panic(err) // it is part of the program
	}
	return archive
})

// zones are the time zones in use, by name: some hundreds at most. To load a zone costs more than all else that decides about a
// device.
var zones sync.Map // from string to *time.Location

// zone returns the time zone with exactly that name in the IANA database.
func zone(name string) (*time.Location, error) {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	data, err := fs.ReadFile(zoneArchive(), name)
	if err != nil {
		return nil, fmt.Errorf("unknown time zone %.64q: want one of the IANA database, as in Europe/Berlin", name)
	}
	in, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("time zone %s: %w", name, err)
	}
	zones.Store(name, in)
	return in, nil
}

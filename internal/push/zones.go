package push

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"sync"
	"time"
)

// zoneInfo is the IANA database: lib/time/zoneinfo.zip of Go, unchanged. Package time/tzdata has
// the same bytes, but time.LoadLocation reads the files of the host first, by the name as a path:
// so what a zone is, and which names it has, would differ between hosts.
//
//go:embed zoneinfo.zip
var zoneInfo []byte

// zoneFiles returns the files of zoneInfo by their names, which are those of the zones.
var zoneFiles = sync.OnceValue(func() map[string]*zip.File {
	archive, err := zip.NewReader(bytes.NewReader(zoneInfo), int64(len(zoneInfo)))
	if err != nil {
		panic(err) // it is part of the program
	}
	files := make(map[string]*zip.File, len(archive.File))
	for _, f := range archive.File {
		files[f.Name] = f
	}
	return files
})

// zones are the time zones that were used so far, by name: of those of zoneFiles, so that they
// are some hundreds. To load one costs more than all else that decides about a device.
var zones sync.Map // from string to *time.Location

// zone returns the time zone with exactly that name in the IANA database.
func zone(name string) (*time.Location, error) {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	file := zoneFiles()[name]
	if file == nil {
		return nil, fmt.Errorf("unknown time zone %.64q: want one of the IANA database, as in Europe/Berlin", name)
	}
	in, err := loadZone(file)
	if err != nil {
		return nil, fmt.Errorf("time zone %s: %w", name, err)
	}
	zones.Store(name, in)
	return in, nil
}

func loadZone(file *zip.File) (*time.Location, error) {
	r, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // all was read, and its checksum compared
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(file.Name, data)
}

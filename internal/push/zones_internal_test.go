package push

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The zones are as in the Go that the program is built by, and all can be used.
func TestZonesAreCurrent(t *testing.T) {
	t.Parallel()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip")
	current, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(current, zoneInfo) {
		t.Errorf("zoneinfo.zip is of another Go: copy %s", path)
	}
	const column = 64 // push_settings.time_zone
	for _, file := range zoneArchive().File {
		if in, err := zone(file.Name); err != nil || in.String() != file.Name || len(file.Name) > column {
			t.Errorf("%s: %v, %v", file.Name, in, err)
		}
	}
	if n := len(zoneArchive().File); n < 500 {
		t.Errorf("%d zones", n)
	}
}

// A zone has one spelling. Other spellings, and further files of a host, are none, and
// nothing is kept of them.
func TestZonesAreKnownByTheirExactNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", "Local", "Europe", "Europe/", "Europe/./Berlin", "Europe//Berlin", "/Europe/Berlin", "Europe/Berlin/", "./Europe/Berlin",
		"Europe/../Europe/Berlin", "../zoneinfo/UTC", "europe/berlin", "Europe/Berlin\x00", " UTC", "posixrules", "localtime", "posix/UTC",
		"right/UTC", "right/Europe/Berlin", "tzdata.zi", "Europe/" + strings.Repeat("./", 40) + "Berlin",
	} {
		in, err := zone(name)
		if err == nil || !strings.Contains(err.Error(), "want one of the IANA database") || len(err.Error()) > 200 {
			t.Errorf("%q: %v, %v", name, in, err)
		}
		if _, kept := zones.Load(name); kept {
			t.Errorf("%q is kept", name)
		}
	}
}

//go:build dist

package packaging_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxExposure is the highest exposure of the unit by "systemd-analyze security".
const maxExposure = 2.0

func TestUnit(t *testing.T) {
	if !have(t, "the unit", "systemd-analyze") {
		return
	}
	// It refers to a program that is not installed here.
	unit, err := os.ReadFile("activityd.service")
	must(t, err)
	here := filepath.Join(t.TempDir(), "activityd.service")
	must(t, os.WriteFile(here, bytes.ReplaceAll(unit, []byte("=/usr/bin/activityd "), []byte("=/bin/true ")), 0o644))
	if said := output(t, "sh", "-c", `systemd-analyze verify --man=no "$1" 2>&1`, "sh", here); strings.Contains(said, "activityd") {
		t.Errorf("systemd-analyze verify: %s", said)
	}
	said := output(t, "systemd-analyze", "security", "--offline=yes", "--no-pager", here)
	found := regexp.MustCompile(`Overall exposure level for activityd.service: ([0-9.]+)`).FindStringSubmatch(said)
	if found == nil {
		t.Fatalf("systemd-analyze security: %s", said)
	}
	exposure, err := strconv.ParseFloat(found[1], 64)
	must(t, err)
	if exposure >= maxExposure {
		t.Errorf("exposure %v, want less than %v:\n%s", exposure, maxExposure, said)
	}
	t.Logf("exposure %v", exposure)
}

package pictures_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/activityd/activityd/internal/demo/pictures"
)

func TestPicturesAreWellFormedSmallAndFreeOfScript(t *testing.T) {
	t.Parallel()
	seen := map[pictures.Subject]bool{}
	for id := range uint64(400) {
		seen[pictures.SubjectOf(id)] = true
		for kind, svg := range map[string][]byte{"picture": pictures.SVG(id), "avatar": pictures.Avatar(id)} {
			requireSVG(t, kind, id, svg)
		}
	}
	if want := 6 * 6; len(seen) != want { // lights and scenes
		t.Errorf("400 pictures show %d subjects, want all %d", len(seen), want)
	}
}

func requireSVG(t *testing.T, kind string, id uint64, svg []byte) {
	t.Helper()
	if len(svg) > 20_000 {
		t.Errorf("%s %d has %d bytes", kind, id, len(svg))
	}
	for _, bad := range []string{"<script", "style=", "NaN", "Inf", "%!"} {
		if bytes.Contains(svg, []byte(bad)) {
			t.Errorf("%s %d contains %q", kind, id, bad)
		}
	}
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s %d: %v", kind, id, err)
		}
	}
}

func TestSameIDSamePicture(t *testing.T) {
	t.Parallel()
	for _, id := range []uint64{1, 2, math.MaxUint64} {
		if !bytes.Equal(pictures.SVG(id), pictures.SVG(id)) {
			t.Errorf("picture %d differs from itself", id)
		}
		if bytes.Equal(pictures.SVG(id), pictures.SVG(id-1)) {
			t.Errorf("pictures %d and %d are the same", id, id-1)
		}
	}
}

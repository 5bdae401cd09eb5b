package pictures

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
)

// The canvas, in SVG units. Pictures are shown cropped, so nothing of weight
// stands at the edge.
const (
	width  = 400
	height = 300
)

// SVG returns the picture with this id as an SVG document of a few kilobytes.
// The same id gives the same bytes. It uses attributes only, no style and no
// script, so that it can be shown under the strictest content security policy.
func SVG(id uint64) []byte {
	r := dice(id)
	light, scene := draw(r)
	c := &canvas{r: r, light: light}
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" preserveAspectRatio="xMidYMid slice">`, width, height)
	scene.paint(c)
	c.printf(`</svg>`)
	return c.buf.Bytes()
}

// Avatar returns a member's portrait, drawn from its id: three overlapping
// discs in colours that belong together.
func Avatar(id uint64) []byte {
	r := dice(^id)
	c := &canvas{r: r, light: lights[r.IntN(len(lights)-2)]} // night and mist make dull faces
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64">`)
	c.printf(`<rect width="64" height="64" fill="%v"/>`, c.light.zenith.mix(c.light.glow, 0.35))
	for _, fill := range []colour{c.light.glow, c.light.far, c.light.near} {
		c.printf(`<circle cx="%.0f" cy="%.0f" r="%.0f" fill="%v" fill-opacity="0.85"/>`,
			c.between(8, 56), c.between(8, 56), c.between(14, 26), fill)
	}
	c.printf(`</svg>`)
	return c.buf.Bytes()
}

// canvas collects the strokes of a picture.
type canvas struct {
	buf   bytes.Buffer
	r     *rand.Rand
	light light
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.buf, format, args...) }

// between returns a random number from low to high.
func (c *canvas) between(low, high float64) float64 { return low + (high-low)*c.r.Float64() }

// sky fills the canvas down to the horizon, with sun or moon, stars and clouds.
func (c *canvas) sky(horizon float64) {
	l := c.light
	c.printf(`<defs><linearGradient id="s" x2="0" y2="1"><stop stop-color="%v"/><stop offset=".55" stop-color="%v"/><stop offset="1" stop-color="%v"/></linearGradient>`,
		l.zenith, l.zenith.mix(l.glow, 0.6), l.glow)
	c.printf(`<radialGradient id="o"><stop stop-color="%v" stop-opacity=".75"/><stop offset="1" stop-color="%v" stop-opacity="0"/></radialGradient></defs>`, l.orb, l.orb)
	c.printf(`<rect width="%d" height="%.0f" fill="url(#s)"/>`, width, horizon+2)
	if l.stars {
		c.starfield(horizon)
	}
	c.orb(horizon)
	for range c.r.IntN(4) {
		c.cloud(c.between(20, horizon*0.6))
	}
}

func (c *canvas) orb(horizon float64) {
	x, y, radius := c.between(70, 330), c.between(40, horizon*0.5), c.between(11, 20)
	if c.light.orbLow {
		y, radius = horizon-c.between(5, 45), c.between(16, 30)
	}
	c.printf(`<circle cx="%.0f" cy="%.0f" r="%.0f" fill="url(#o)"/>`, x, y, radius*4)
	c.printf(`<circle cx="%.0f" cy="%.0f" r="%.0f" fill="%v"/>`, x, y, radius, c.light.orb)
}

func (c *canvas) starfield(horizon float64) {
	c.printf(`<path stroke="#fff" stroke-linecap="round" stroke-width="1.3" stroke-opacity=".8" d="`)
	for range 45 {
		c.printf("M%.0f %.0fh.1", c.between(0, width), c.between(0, horizon*0.9))
	}
	c.printf(`"/>`)
}

func (c *canvas) cloud(y float64) {
	x, span := c.between(20, 320), c.between(50, 130)
	c.printf(`<g fill="%v" fill-opacity="%.2f">`, c.light.cloud, c.between(0.25, 0.6))
	for range 3 {
		c.printf(`<rect x="%.0f" y="%.0f" width="%.0f" height="7" rx="3.5"/>`,
			x+c.between(-25, 25), y, span*c.between(0.5, 1))
		y += 6
	}
	c.printf(`</g>`)
}

// land fills everything below a ridge that runs around the height y. Roughness
// is 0 for dunes and 1 for crags.
func (c *canvas) land(y, swing, roughness float64, fill colour) {
	c.printf(`<path fill="%v" d="M0 %d`, fill, height)
	ridge := c.ridge(y, swing, roughness)
	for x := 0; x <= width; x += 10 {
		c.printf("L%d %.1f", x, ridge(float64(x)))
	}
	c.printf(`V%dZ"/>`, height)
}

// ridge returns the outline of a range of hills: a few waves on top of each other, the shorter
// the lower.
func (c *canvas) ridge(y, swing, roughness float64) func(x float64) float64 {
	type wave struct{ length, high, phase float64 }
	waves := []wave{{c.between(180, 420), swing, c.between(0, 7)}}
	for i := 1.0; i < 6; i++ {
		waves = append(waves, wave{waves[0].length / (i * 1.9), swing * (0.18 + 0.5*roughness) / i, c.between(0, 7)})
	}
	return func(x float64) float64 {
		at := y
		for _, w := range waves {
			s := math.Sin(x/w.length*2*math.Pi + w.phase)
			at -= w.high * (roughness*(1-2*math.Abs(s)) + (1-roughness)*s)
		}
		return at
	}
}

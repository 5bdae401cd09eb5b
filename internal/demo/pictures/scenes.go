package pictures

import "math"

// scene is a kind of landscape.
type scene struct {
	name  string
	paint func(*canvas)
}

var scenes = []scene{
	{"mountains", mountains},
	{"hills", hills},
	{"sea", sea},
	{"forest", forest},
	{"city", city},
	{"desert", desert},
}

// slope is a stretch of land, painted from the horizon forward in layers, each
// nearer and darker.
type slope struct {
	from, to         float64 // heights of its first and last ridge
	far, near        float64 // how near they are: 0 is the horizon, 1 the painter's feet
	swing, roughness float64 // see [canvas.land]
}

func (c *canvas) layers(n int, s slope) {
	for i := range n {
		share := float64(i) / float64(n-1)
		fill := c.light.far.mix(c.light.near, s.far+(s.near-s.far)*share)
		c.land(s.from+(s.to-s.from)*share, s.swing*(1-0.35*share), s.roughness, fill)
	}
}

func mountains(c *canvas) {
	horizon := c.between(150, 180)
	c.sky(horizon + 60)
	c.layers(2, slope{horizon, horizon + 35, 0, 0.3, c.between(38, 55), 0.85})
	c.layers(3, slope{horizon + 65, 265, 0.45, 1, 16, 0.25})
}

func hills(c *canvas) {
	horizon := c.between(150, 185)
	c.sky(horizon + 40)
	c.layers(5, slope{horizon, 262, 0, 1, c.between(14, 22), 0.05})
	c.trees(250, 9, 0.7)
}

func sea(c *canvas) {
	horizon := c.between(150, 195)
	c.sky(horizon)
	l := c.light
	c.printf(`<linearGradient id="w" x2="0" y2="1"><stop stop-color="%v"/><stop offset="1" stop-color="%v"/></linearGradient>`,
		l.glow.mix(l.zenith, 0.45), l.zenith.mix(l.near, 0.7))
	c.printf(`<rect y="%.0f" width="%d" height="%.0f" fill="url(#w)"/>`, horizon, width, height-horizon)
	c.printf(`<g stroke="%v" stroke-linecap="round" stroke-opacity=".35">`, l.orb)
	for y := horizon + 6; y < height; y += c.between(5, 11) {
		depth := (y - horizon) / (height - horizon)
		c.printf(`<path stroke-width="%.1f" d="M%.0f %.0fh%.0f"/>`, 1+2*depth, c.between(40, 320), y, c.between(20, 40+90*depth))
	}
	c.printf(`</g>`)
	if c.r.IntN(3) > 0 {
		c.boat(c.between(90, 310), c.between(horizon+8, horizon+40))
	} else {
		c.land(278, 14, 0.1, l.near)
	}
}

func (c *canvas) boat(x, y float64) {
	c.printf(`<g fill="%v"><path d="M%.0f %.0fh34l-6 8h-21z"/><path d="M%.0f %.0fv-34l16 30z"/><path d="M%.0f %.0fv-26l-10 23z"/></g>`,
		c.light.shadow, x, y, x+17, y-2, x+15, y-2)
}

func forest(c *canvas) {
	horizon := c.between(120, 150)
	c.sky(horizon + 50)
	c.layers(2, slope{horizon, horizon + 25, 0, 0.2, 22, 0.4})
	for i := range 3 {
		share := float64(i+1) / 3
		c.firs(horizon+50+60*share, 12+22*share, c.light.far.mix(c.light.near, 0.35+0.65*share))
	}
}

// firs paints a row of pointed trees whose feet stand at the height y.
func (c *canvas) firs(y, tall float64, fill colour) {
	c.printf(`<path fill="%v" d="`, fill)
	for x := -5.0; x < width+5; x += tall * c.between(0.35, 0.8) {
		top, foot, half := y-tall*c.between(1, 2.1), y+c.between(-3, 6), tall*c.between(0.28, 0.4)
		c.printf("M%.0f %.0fL%.0f %.0fH%.0fZ", x, top, x+half, foot, x-half)
	}
	c.printf(`M0 %.0fH%dV%dH0Z"/>`, y-4, width, height)
}

// trees scatters a few round-headed trees over the foreground.
func (c *canvas) trees(y, size, density float64) {
	for x := 10.0; x < width; x += c.between(18, 70) {
		if c.r.Float64() > density {
			continue
		}
		r, at := size*c.between(0.7, 1.5), y+c.between(-10, 22)
		c.printf(`<path fill="%v" d="M%.0f %.0fh2v%.0fh-2z"/><circle cx="%.0f" cy="%.0f" r="%.0f" fill="%v"/>`,
			c.light.shadow, x-1, at, r*2, x, at, r, c.light.near.mix(c.light.shadow, c.between(0.2, 0.9)))
	}
}

func city(c *canvas) {
	c.sky(250)
	for i := range 3 {
		share := float64(i) / 2
		c.skyline(165+45*share, c.stone(0.15+0.85*share), i == 2)
	}
}

// stone is the colour of walls that stand near or far: by day the land is green,
// and houses are not.
func (c *canvas) stone(near float64) colour {
	const slate colour = 0x46505f
	fill := c.light.far.mix(c.light.near, near)
	if c.light.lit {
		return fill
	}
	return fill.mix(slate.mix(c.light.glow, 1-near), 0.55)
}

// skyline paints a row of houses down to the foot of the picture; the nearest
// row may have lit windows.
func (c *canvas) skyline(y float64, fill colour, nearest bool) {
	for x := -10.0; x < width; {
		wide, top := math.Round(c.between(18, 46)), y-c.between(-15, 60)
		c.printf(`<path fill="%v" d="M%.0f %.0fh%.0fV%dh-%.0fz"/>`, fill, x, top, wide+1, height, wide+1)
		if nearest && c.light.lit {
			c.windows(x, top, wide)
		}
		x += wide
	}
}

func (c *canvas) windows(x, top, wide float64) {
	c.printf(`<path fill="#ffdf9a" fill-opacity=".85" d="`)
	for wy := top + 8; wy < height-8; wy += 11 {
		for wx := x + 5; wx < x+wide-7; wx += 9 {
			if c.r.IntN(3) == 0 {
				c.printf("M%.0f %.0fh4v5h-4z", wx, wy)
			}
		}
	}
	c.printf(`"/>`)
}

func desert(c *canvas) {
	horizon := c.between(165, 195)
	c.sky(horizon + 30)
	sand, l := colour(0xd99a5b), c.light
	for i := range 4 {
		share := float64(i) / 3
		fill := l.far.mix(l.near, share*0.8).mix(sand.mix(l.near, 0.25+0.4*share), 0.45)
		c.land(horizon+75*share, 18+6*share, 0.12*share, fill)
	}
}

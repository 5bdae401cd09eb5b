package pictures

import "fmt"

// colour is 0xRRGGBB.
type colour uint32

func (c colour) String() string { return fmt.Sprintf("#%06x", uint32(c)) }

// mix returns the colour a share of the way from c to d; share is 0 to 1.
func (c colour) mix(d colour, share float64) colour {
	var out colour
	for shift := 0; shift <= 16; shift += 8 {
		a, b := float64(c>>shift&0xff), float64(d>>shift&0xff)
		out |= colour(a+(b-a)*share+0.5) << shift
	}
	return out
}

// light is a time of day: the colours that everything in a picture is made of.
type light struct {
	name          string
	zenith, glow  colour // the sky from top to horizon
	far, near     colour // the land from the horizon to the painter's feet
	orb           colour // sun or moon
	orbLow        bool   // near the horizon
	stars, lit    bool   // stars in the sky; lights in the windows
	cloud, shadow colour
}

var lights = []light{
	{name: "dawn", zenith: 0x5b6c9e, glow: 0xf9d9c2, far: 0xb59bb2, near: 0x2f2a47, orb: 0xfff3d6, orbLow: true, cloud: 0xf6c6b8, shadow: 0x1d1a30},
	{name: "day", zenith: 0x3d84c6, glow: 0xd5ecf7, far: 0x9cc0c9, near: 0x23543f, orb: 0xfffbe6, cloud: 0xffffff, shadow: 0x16382b},
	{name: "golden", zenith: 0x7fa3b8, glow: 0xfbe0a0, far: 0xd2a86c, near: 0x513a20, orb: 0xfff6cf, orbLow: true, cloud: 0xfdebc4, shadow: 0x342413},
	{name: "dusk", zenith: 0x2b2b5f, glow: 0xf5815a, far: 0x8b4a70, near: 0x1b1530, orb: 0xffd9a0, orbLow: true, lit: true, cloud: 0xc45f74, shadow: 0x100c20},
	{name: "night", zenith: 0x070d24, glow: 0x2f4a78, far: 0x24375c, near: 0x060a18, orb: 0xf2f0dc, stars: true, lit: true, cloud: 0x314a74, shadow: 0x03050d},
	{name: "mist", zenith: 0x9fb2b8, glow: 0xeef0ea, far: 0xc6d1cf, near: 0x4c625f, orb: 0xfffdf2, cloud: 0xf7f8f4, shadow: 0x36494a},
}

// Package pictures paints the made-up photos of the demo: small landscapes as
// SVG, each drawn from nothing but the photo's id, so that they need neither
// files nor a network and look the same every time.
package pictures

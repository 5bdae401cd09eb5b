// Package demo shows activityd at work on a made-up photo site: a page with the
// homepage widget of any viewer, which updates as one watches, and beside it
// the same question asked the way a site without activityd would ask it.
//
// The package brings the traffic (a few members uploading, adding, removing,
// hiding and blocking each second), the page and the pictures. The site, the
// read and the index are those of the program, handed in by [Config]; package
// world under this one makes up the data.
//
// The page is rendered on the server and works without JavaScript. With it, the
// page fetches its live parts again every second and puts them in place.
package demo

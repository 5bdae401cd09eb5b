activityd token key first --viewer-keys ../keys.json     # the key that your site and activityd share
activityd serve --viewer-keys ../keys.json --allow-origin http://localhost:8000 &
echo "{\"token\":\"$(activityd token viewer 12345 --viewer-keys ../keys.json)\"}" > token.json   # what your site would answer
python3 -m http.server --bind 127.0.0.1 8000     # then look at http://localhost:8000/

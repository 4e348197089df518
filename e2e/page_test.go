package e2e

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/otelproto/otelproto-go/stats/statshttp"
)

var pictures = flag.String("pictures", "", "write screenshots of the page into this folder")

func picture(b *browser, name string) {
	if *pictures == "" {
		return
	}

	png := result(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(*pictures, name), png, 0o644); err != nil {
		b.Fatal(err)
	}
}

func TestPictures(t *testing.T) {
	traffic := newTraffic(t, 9)
	traffic.flow(t)

	b := newBrowser(t)
	url := serve(t, statshttp.Handler(traffic.registry, statshttp.WithTitle("controller"), statshttp.WithSection(targets{})))

	b.do(chromedp.EmulateViewport(1400, 900), chromedp.Navigate(url))
	b.until(`document.querySelector('#note') === null`)
	b.do(chromedp.Click(chromedp.CSS(`.messages tbody summary`)))
	picture(b, "light.png")
	dark := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: dark})
	picture(b, "dark.png")
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	b.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile))
	for i, at := range []string{"#page", "#messages", "#connections"} {
		eval[bool](b, `(document.querySelector("`+at+`").scrollIntoView(), true)`)
		if *pictures != "" {
			os.WriteFile(filepath.Join(*pictures, "phone"+string(rune('0'+i))+".png"), result(b, chromedp.CaptureScreenshot()), 0o644)
		}
	}
}

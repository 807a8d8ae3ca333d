// Search in pages that are read from the disk: browsers start no Worker there, so a frame runs it.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inner = frame.contentWindow
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      this.script = new Promise((loaded) => {
        const script = inner.document.createElement("script")
        script.src = url
        script.onload = () => loaded(inner)
        inner.document.body.append(script)
      })
    }

    async postMessage(data) {
      const inner = await this.script
      inner.dispatchEvent(new inner.MessageEvent("message", { data }))
    }
  }

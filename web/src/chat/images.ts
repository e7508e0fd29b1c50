// Images of questions, as data URLs. Large ones are made smaller: no model sees more, and requests have a limit.

/** Longest side that is sent as it is. */
const SIDE = 2048;
const BYTES = 3 << 20;
/** What the server decodes. */
const TAKEN = ["image/png", "image/jpeg", "image/webp", "image/gif"];

export function readImages(files: File[]): Promise<string[]> {
  return Promise.all(files.map(readImage));
}

async function readImage(file: File): Promise<string> {
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name || "The image"} cannot be read: PNG, JPEG, WebP and GIF can.`);
  }
  const { width, height } = bitmap;
  const scale = Math.min(1, SIDE / Math.max(width, height));
  if (scale === 1 && file.size <= BYTES && TAKEN.includes(file.type)) {
    bitmap.close();
    return dataUrl(file);
  }
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas.toDataURL("image/jpeg", 0.92);
}

function dataUrl(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}
